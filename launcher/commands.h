#pragma once

namespace CLI {
class App;
}

namespace tutti::launcher {

void add_map(CLI::App& app);
void add_bind(CLI::App& app, int& code);  ///< and verify
void add_run(CLI::App& app, int& code);
void add_script(CLI::App& app);
void add_trace(CLI::App& app);
void add_repl(CLI::App& app, int& code);
void add_bench(CLI::App& app, int argc, char** argv, int& code);  ///< run by all ranks of a job; `code` is what to exit with

}  // namespace tutti::launcher
