"""Scripts by which shells complete command lines, from what the commands take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from attrs import frozen


class Takes(Enum):
    """What an argument is completed from, beside its words."""

    NOTHING = "nothing"
    VALUE = "value"
    FILE = "file"
    FOLDER = "folder"


@frozen
class Argument:
    """An option with its `flags`, or, without any, a positional argument; `words` are values that it may have."""

    flags: tuple[str, ...]
    name: str
    about: str
    takes: Takes
    words: tuple[str, ...] = ()


@frozen
class CommandLine:
    """A command's words, such as `bench serve`, with what it is for and what it takes."""

    words: str
    about: str
    arguments: tuple[Argument, ...]

    @property
    def options(self) -> tuple[Argument, ...]:
        """Those that begin with a dash."""
        return tuple(each for each in self.arguments if each.flags)

    @property
    def positional(self) -> tuple[Argument, ...]:
        """Those that do not."""
        return tuple(each for each in self.arguments if not each.flags)


# What may stand before or behind a command's words; the others are of `mks` alone.
GLOBAL = "--debug"
ALONE = ("--help", "--version", GLOBAL)


def first_words(lines: Sequence[CommandLine]) -> dict[str, str]:
    """What may stand behind `mks`, with what it is for."""
    found: dict[str, str] = {}
    for line in lines:
        found.setdefault(line.words.split()[0], line.about)
    return found


def second_words(lines: Sequence[CommandLine]) -> dict[str, list[str]]:
    """What may stand behind a command that has commands of its own."""
    found: dict[str, list[str]] = {}
    for line in lines:
        first, *rest = line.words.split()
        if rest:
            found.setdefault(first, []).append(rest[0])
    return found


def _quoted(text: str) -> str:
    """As one word of bash or zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def bash(lines: Sequence[CommandLine]) -> str:
    """For bash from 3.2 on."""
    cases = "".join(_bash_case(line) for line in lines)
    nested = "".join(
        f"""\
  if [ "$command" = {first} ]; then
    if [ "$count" -eq 1 ]; then words={_quoted(" ".join(rest))}; else command="{first} $second"; fi
  fi
"""
        for first, rest in second_words(lines).items()
    )
    return f"""\
# Completes `mks` in bash; made by `mks completion bash`.
_mks() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="" second="" start=""
  local words="" files="" options="" count=0 i
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [ "${{COMP_WORDS[i]}}" != {GLOBAL} ]; then
      count=$((count + 1))
      case $count in 1) command="${{COMP_WORDS[i]}}" ;; 2) second="${{COMP_WORDS[i]}}" ;; esac
    fi
  done
  # `--target=v` is three words where `=` parts them, and one where it does not.
  if [ "$word" = "=" ]; then word=""; elif [ "$before" = "=" ]; then before="${{COMP_WORDS[COMP_CWORD-2]}}"; fi
  case "$word" in --*=*) before="${{word%%=*}}"; start="$before="; word="${{word#*=}}" ;; esac
  if [ "$count" -eq 0 ]; then words={_quoted(" ".join(first_words(lines)))}; options={_quoted(" ".join(ALONE))}; fi
{nested}  case "$command" in
{cases}  esac
  case "$word" in -*) words="$options"; files="" ;; esac
  COMPREPLY=($(compgen -P "$start" -W "$words" -- "$word"))
  if [ -n "$files" ]; then
    local IFS=$'\\n'
    compopt -o filenames 2>/dev/null
    COMPREPLY+=($(compgen -P "$start" "$files" -- "$word"))
  fi
}}
complete -F _mks mks
"""


def _bash_case(line: CommandLine) -> str:
    flags = " ".join(flag for option in line.options for flag in option.flags)
    values = [
        f"        {'|'.join(each.flags)}) {_bash_values([each])}options='' ;;\n"
        for each in line.options
        if each.takes is not Takes.NOTHING
    ]
    return f"""\
    {_quoted(line.words)})
      options={_quoted(flags)}
      case "$before" in
{"".join(values)}        *) {_bash_values(line.positional)};;
      esac ;;
"""


def _bash_values(arguments: Iterable[Argument]) -> str:
    arguments = list(arguments)
    words = " ".join(word for each in arguments for word in each.words)
    kinds = {each.takes for each in arguments}
    files = "-f" if Takes.FILE in kinds else "-d" if Takes.FOLDER in kinds else ""
    return (f"words={_quoted(words)}; " if words else "") + (f"files={files}; " if files else "")


_ZSH = {Takes.VALUE: " ", Takes.FILE: "_files", Takes.FOLDER: "_files -/"}


def zsh(lines: Sequence[CommandLine]) -> str:
    """For zsh: sourced, or as `_mks` in a folder of `fpath`."""
    firsts = " ".join(_quoted(f"{word}:{about}") for word, about in first_words(lines).items())
    nested = "".join(
        f"""\
  if [[ $command == {first} ]]; then
    if (( CURRENT == 3 )); then _values command {" ".join(rest)}; return; fi
    command="{first} $words[3]"; shift words; (( CURRENT-- ))
  fi
"""
        for first, rest in second_words(lines).items()
    )
    cases = "".join(
        f"    {_quoted(line.words)}) _arguments -s {' '.join(_zsh_spec(each) for each in line.arguments)} ;;\n"
        for line in lines
    )
    return f"""\
#compdef mks
# Completes `mks` in zsh; made by `mks completion zsh`.
_mks() {{
  local -a commands=({firsts})
  local -a typed=()
  local -i i
  for (( i = 1; i < CURRENT; i++ )); do [[ $words[i] == {GLOBAL} ]] || typed+=("$words[i]"); done
  words=("${{(@)typed}}" "${{(@)words[CURRENT,-1]}}")
  CURRENT=$(( $#typed + 1 ))
  if (( CURRENT == 2 )); then _describe command commands; return; fi
  local command=$words[2]
{nested}  shift words; (( CURRENT-- ))
  case $command in
{cases}  esac
}}
if [[ $funcstack[1] == _mks ]]; then _mks "$@"; else compdef _mks mks; fi
"""


def _zsh_spec(each: Argument) -> str:
    action = _ZSH.get(each.takes, "")
    if each.words:
        action = f"({' '.join(each.words)})"
        if each.takes is Takes.FILE:
            # A space first, or options for `compadd` would be put behind `_alternative`.
            action = f' _alternative "words:{each.name}:{action}" "files:file:_files"'
    if not each.flags:
        return _quoted(f"*:{each.name}:{action}")
    about = each.about.translate({ord("["): "(", ord("]"): ")", ord(":"): "\\:"})
    value = "" if each.takes is Takes.NOTHING else f":{each.name}:{action}"
    # One description for both spellings, so that the second is not offered where the first was given.
    group = f"({' '.join(each.flags)})" if len(each.flags) > 1 else ""
    names = [f"{flag}=" if value and flag.startswith("--") else flag for flag in each.flags]
    return " ".join(_quoted(f"{group}{name}[{about}]{value}") for name in names)


def fish(lines: Sequence[CommandLine]) -> str:
    """For fish."""
    nested = "".join(
        f'    test "$words[2]" = {first}; and set command "{first} $words[3]"\n' for first in second_words(lines)
    )
    firsts = "".join(
        f"complete -c mks -n '__mks_runs' -a {word} -d {_fish(about)}\n" for word, about in first_words(lines).items()
    )
    seconds = "".join(
        f"complete -c mks -n '__mks_runs {first}' -a {_fish(' '.join(rest))}\n"
        for first, rest in second_words(lines).items()
    )
    options = "".join(_fish_line(line.words, each) for line in lines for each in line.arguments)
    return f"""\
# Completes `mks` in fish; made by `mks completion fish`.
function __mks_runs
    set -l words (string match -v -- {GLOBAL} (commandline -opc))
    set -l command "$words[2]"
{nested}    test (string trim -- "$command") = "$argv"
end
complete -c mks -f
{firsts}{seconds}{options}"""


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish_line(words: str, each: Argument) -> str:
    flags = "".join(f" -l {flag[2:]}" if flag.startswith("--") else f" -s {flag[1:]}" for flag in each.flags)
    values = f" -a {_fish(' '.join(each.words))}" if each.words else ""
    if each.takes is Takes.FILE:
        values += " -F" if not each.flags else " -r -F"
    elif each.takes is Takes.FOLDER:
        values += " -x -a '(__fish_complete_directories)'"
    elif each.takes is Takes.VALUE and each.flags:
        values += " -x"
    if not flags and not values:
        return ""
    return f"complete -c mks -n '__mks_runs {words}'{flags}{values} -d {_fish(each.about)}\n"


SHELLS: dict[str, Callable[[Sequence[CommandLine]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
