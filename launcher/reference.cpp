// tutti completion, tutti man: written from the options themselves.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "commands.h"

namespace {

struct Command {
  std::string path;  // "trace report"; "": tutti itself
  const CLI::App* app;
};

void add_commands(const CLI::App& app, const std::string& path, std::vector<Command>& all) {
  all.push_back({path, &app});
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); }))
    add_commands(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name(), all);
}
std::vector<Command> commands_of(const CLI::App& app) {
  std::vector<Command> all;
  add_commands(app, "", all);
  return all;
}

std::vector<std::string> names_of(const CLI::Option& option) {  // none of positional ones
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> words_of(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); }))
    words.push_back(sub->get_name());
  for (const CLI::Option* option : app.get_options())
    for (std::string& name : names_of(*option)) words.push_back(std::move(name));
  return words;
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

/// What an option's value is called: "gpu|cores" if there is a choice. CLI11 writes that as "TEXT:{gpu,cores}".
std::string value_of(const CLI::Option& option) {
  if (!option.get_option_text().empty()) return option.get_option_text();
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.rfind('}');
  if (begin == std::string::npos || end == std::string::npos) return "VALUE";
  std::string choices = type.substr(begin + 1, end - begin - 1);
  std::replace(choices.begin(), choices.end(), ',', '|');
  return choices;
}

std::string completion(const CLI::App& app) {
  std::string cases, paths, choices;
  for (const Command& command : commands_of(app)) {
    for (const CLI::Option* option : command.app->get_options())
      if (std::string values = value_of(*option); values.find('|') != std::string::npos) {
        std::replace(values.begin(), values.end(), '|', ' ');
        for (const std::string& name : names_of(*option))
          choices += fmt::format("    '{} {}') words='{}' ;;\n", command.path, name, values);
      }
    cases += fmt::format("    '{}') words='{}' ;;\n", command.path, joined(words_of(*command.app)));
    paths += fmt::format("|{}", command.path);
  }
  return fmt::format(
      R"sh(# bash completion for tutti: eval "$(tutti completion)"; in zsh: autoload -U bashcompinit && bashcompinit first
_tutti() {{
  local path= next words= i
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [ "${{COMP_WORDS[i]}}" = -- ]; then  # a program follows
      [ $((i + 1)) -eq "$COMP_CWORD" ] && COMPREPLY=($(compgen -c -f -- "${{COMP_WORDS[COMP_CWORD]}}"))
      return
    fi
    next="$path${{path:+ }}${{COMP_WORDS[i]}}"
    case "{}|" in *"|$next|"*) path=$next ;; esac
  done
  case "$path" in
{}  esac
  case "$path ${{COMP_WORDS[COMP_CWORD-1]}}" in  # an option's value
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _tutti tutti
)sh",
      paths, cases, choices);
}

/// For troff: a dash is a hyphen unless told otherwise, and dots begin requests.
std::string escaped(std::string_view text) {
  std::string roff;
  for (const char c : text) {
    if (c == '\\') roff += "\\e";
    else if (c == '-') roff += "\\-";
    else roff += c;
  }
  return roff.starts_with('.') || roff.starts_with('\'') ? "\\&" + roff : roff;
}

std::string page_of(const Command& command) {
  std::string page = fmt::format(".SS tutti {}\n{}\n", escaped(command.path), escaped(command.app->get_description()));
  for (const CLI::Option* option : command.app->get_options()) {
    if (option == command.app->get_help_ptr()) continue;
    const auto names = names_of(*option);
    const std::string name = names.empty() ? option->get_name(true) : fmt::format("{}", fmt::join(names, ", "));
    const std::string value = names.empty() || option->get_items_expected_max() == 0 ? "" : " " + value_of(*option);
    const std::string initial = option->get_default_str().empty() ? "" : fmt::format(". Default: {}", option->get_default_str());
    page += fmt::format(".TP\n\\fB{}\\fR{}\n{}{}{}\n", escaped(name), escaped(value), escaped(option->get_description()),
                        escaped(initial), option->get_required() ? ". Required" : "");
  }
  return page;
}

std::string man(const CLI::App& app) {
  std::string text = fmt::format(
      ".TH TUTTI 1 \"\" \"tutti {}\"\n.SH NAME\ntutti \\- {}\n.SH SYNOPSIS\n\\fBtutti\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR] "
      "[\\-\\- \\fIPROGRAM\\fR ...]\n.SH COMMANDS\n",
      TUTTI_VERSION, escaped(app.get_description().substr(app.get_description().find(": ") + 2)));
  for (const Command& command : commands_of(app))
    if (!command.path.empty()) text += page_of(command);
  text += R"(.SH EXIT STATUS
\fBrun\fR and \fBbind\fR: the program's own; 128 and the signal that has killed it; 124: the time limit; 126, 127: it can't be executed, is not there; 130: Ctrl\-C.
\fBtest\fR: 0; 1: a run has failed; 77: all were skipped; 99: set up wrongly.
\fBdoctor\fR: 1: there is a problem. \fBverify\fR: 1: the kernel has granted something else.
All: 1: an error; above 100: the options are wrong.
.SH ENVIRONMENT
TUTTI_BIND, TUTTI_TOPOLOGY and others: docs/cluster.md says which variable decides what.
.SH SEE ALSO
\fBmpirun\fR(1), \fBsrun\fR(1), \fBsbatch\fR(1), \fBlstopo\fR(1)
)";
  return text;
}

}  // namespace

void tutti::launcher::add_reference(CLI::App& app) {
  app.add_subcommand("completion", "writes completion for bash: eval \"$(tutti completion)\"")->callback([&app] {
    std::cout << completion(app);
  });
  app.add_subcommand("man", "writes the manual page: tutti man | man -l -")->callback([&app] { std::cout << man(app); });
}
