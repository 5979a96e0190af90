#include "commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>

namespace {

/// As users type it: "tutti bench allreduce".
std::string full_name(const CLI::App& command) {
  return command.get_parent() ? full_name(*command.get_parent()) + " " + command.get_name() : command.get_name();
}

std::vector<const CLI::App*> subcommands(const CLI::App& command) {
  return command.get_subcommands([](const CLI::App*) { return true; });
}

const CLI::App* subcommand(const CLI::App& command, const std::string& name) {
  for (const CLI::App* one : subcommands(command))
    if (one->get_name() == name) return one;
  return nullptr;
}

/// Where the word is a command of a command beside it, that is what was meant.
std::string unknown_command(const CLI::App& command, const std::string& word) {
  for (const CLI::App* beside : subcommands(command))
    if (const CLI::App* meant = subcommand(*beside, word))
      return fmt::format("no command '{}'; it is {}", word, full_name(*meant));
  return fmt::format("no command '{}'; {} --help lists them", word, full_name(command));
}

/// What is wrong with a word before "--", or nothing: CLI11 would name the words after it, which are the program's.
std::string wrong_word(const CLI::App& app, int argc, char** argv) {
  const CLI::App* command = &app;
  bool had_positional = false, has_program = false;
  const auto say = [&](const std::string& what) { return fmt::format("{}: put -- before the program", what); };
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string word = argv[i];
    if (had_positional && word.starts_with('[')) return say(fmt::format("'{}' would be taken apart", word));
    if (has_program && word.starts_with('-') && word != "-")
      return say(fmt::format("'{}' may be the program's or tutti's", word));
    if (!word.starts_with('-') || word == "-") {
      const CLI::App* sub = had_positional ? nullptr : subcommand(*command, word);
      if (!sub && !had_positional && !subcommands(*command).empty()) return unknown_command(*command, word);
      had_positional |= !sub;
      has_program |= !sub && command->get_option_no_throw("PROGRAM");
      if (sub) command = sub;
      continue;
    }
    const bool is_long = word.starts_with("--");
    const size_t equals = word.find('=');
    const std::string name = is_long ? word.substr(0, equals) : word.substr(0, 2);
    const CLI::Option* option = command->get_option_no_throw(name);
    const bool has_launcher = command->get_option_no_throw("--launcher") != nullptr;
    if (!option || word == "-np")
      return fmt::format("unknown option {}; {} --help lists them{}", word, full_name(*command),
                         has_launcher ? fmt::format(". mpirun's and srun's own go through by -L, a word each: -L {}", word) : "");
    if (option->get_items_expected_max() > 0 && (is_long ? equals == std::string::npos : word.size() == 2)) ++i;  // its value
  }
  return has_program &&
                 std::find_if(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--"; }) != argv + argc
             ? say("'--' comes after the program")
             : "";
}

std::vector<std::string>& words_after_dashes() {
  static std::vector<std::string> words;
  return words;
}

}  // namespace

std::vector<std::string> tutti::launcher::program_of(const std::vector<std::string>& parsed) {
  return words_after_dashes().empty() ? parsed : words_after_dashes();
}

void tutti::launcher::need_subcommand(CLI::App& app) {
  app.require_subcommand(0, 1);
  app.callback([&app] {
    if (app.get_subcommands().empty()) throw CLI::RequiredError("A subcommand");
  });
}

int tutti::launcher::parse(CLI::App& app, int argc, char** argv) {
  if (const std::string wrong = wrong_word(app, argc, argv); !wrong.empty()) {
    fmt::print(stderr, "tutti: {}\n", wrong);
    return static_cast<int>(CLI::ExitCodes::ExtrasError);
  }
  char** dashes = std::find_if(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--"; });
  if (dashes != argv + argc) words_after_dashes().assign(dashes + 1, argv + argc);
  CLI11_PARSE(app, argc, argv);
  return 0;
}

int tutti::launcher::end_output(int code) {
  const bool is_written = std::cout.flush().good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (is_written) return code;
  std::fputs("tutti: output is lost: standard output can't be written; is the disk full?\n", stderr);
  return code == 0 ? 1 : code;
}
