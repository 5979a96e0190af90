#include "commands.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <string_view>

namespace {

/// What is wrong with a word before "--", or nothing: CLI11 would name the words after it, which are the program's.
std::string wrong_word(const CLI::App& app, int argc, char** argv) {
  const CLI::App* command = &app;
  bool had_positional = false, has_program = false;
  const auto say = [&](const std::string& what) { return fmt::format("{}: put -- before the program", what); };
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    const std::string word = argv[i];
    if (had_positional && word.starts_with('[')) return say(fmt::format("'{}' would be taken apart", word));
    if (has_program && word.starts_with('-') && word != "-") return say(fmt::format("'{}' may be the program's or tutti's", word));
    if (!word.starts_with('-') || word == "-") {
      const auto subs = command->get_subcommands([](const CLI::App*) { return true; });
      const auto found = std::find_if(subs.begin(), subs.end(), [&](const CLI::App* one) { return one->get_name() == word; });
      const CLI::App* sub = had_positional || found == subs.end() ? nullptr : *found;
      if (!sub && !had_positional && !subs.empty()) return fmt::format("no command '{}'; {} --help lists them", word, command == &app ? "tutti" : "tutti " + command->get_name());
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
      return fmt::format("unknown option {}; tutti {} --help lists them{}", word, command->get_name(), has_launcher ? fmt::format(". mpirun's and srun's own go through by -L, a word each: -L {}", word) : "");
    if (option->get_items_expected_max() > 0 && (is_long ? equals == std::string::npos : word.size() == 2)) ++i;  // its value
  }
  return has_program && std::find_if(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--"; }) != argv + argc ? say("'--' comes after the program") : "";
}

std::vector<std::string>& words_after_dashes() {
  static std::vector<std::string> words;
  return words;
}

}  // namespace

std::vector<std::string> tutti::launcher::program_of(const std::vector<std::string>& parsed) { return words_after_dashes().empty() ? parsed : words_after_dashes(); }

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
