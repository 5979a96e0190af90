#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tutti::launcher {

/// One of its subcommands must be named; CLI11's own check would not tell a wrong one from none.
void need_subcommand(CLI::App& app);
int parse(CLI::App& app, int argc, char** argv);  ///< 0, or what to exit with: what is wrong has been said

/// At the end of main.  @return  what to exit with: `code`, or 1 where standard output has not taken all that was written to it
int end_output(int code);

/// The program to start: what follows "--", as it was typed (CLI11 takes brackets for lists), else what was parsed.
std::vector<std::string> program_of(const std::vector<std::string>& parsed);

void add_binding(CLI::App& command, std::string& bind, const std::string& description);  ///< --bind, of `tutti bind` and others
void add_map(CLI::App& app);
void add_bind(CLI::App& app, int& code);  ///< and verify
void add_run(CLI::App& app, int& code);
void add_rank(CLI::App& app, int& code);  ///< of run
void add_test(CLI::App& app, int& code);
void add_doctor(CLI::App& app, int& code);
void add_probe(CLI::App& app, int& code);  ///< run by all ranks of a job
void add_script(CLI::App& app);
void add_reference(CLI::App& app);  ///< last: it tells of all
void add_trace(CLI::App& app);
void add_repl(CLI::App& app, int& code);
void add_bench(CLI::App& app, int argc, char** argv, int& code);  ///< run by all ranks of a job; `code` is what to exit with

}  // namespace tutti::launcher
