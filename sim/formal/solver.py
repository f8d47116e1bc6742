# SPDX-License-Identifier: BSD-2-Clause
"""Bitwuzla's Python binding as the program that Yosys' smtbmc talks to, line by line.

The wheel has the solver but no program. Run as a script, with SMT-LIB commands as its input.
"""

import sys


def main() -> None:
    """Answers until the input ends."""
    if "--help" in sys.argv:
        print("--lang")  # by which smtbmc knows a solver of today
        return
    import bitwuzla

    options = bitwuzla.Options()
    options.set(bitwuzla.Option.PRODUCE_MODELS, True)
    parser = bitwuzla.Parser(bitwuzla.TermManager(), options, "smt2")
    command, depth = "", 0
    for line in sys.stdin:
        command += line
        depth += line.count("(") - line.count(")")
        if depth or not command.strip():
            continue
        match command.split():
            case ["(exit)"]:
                return
            # The parser loses count of these from one call to the next.
            case ["(push", levels]:
                parser.bitwuzla().push(int(levels.rstrip(")")))
            case ["(pop", levels]:
                parser.bitwuzla().pop(int(levels.rstrip(")")))
            case _:
                parser.parse(command, False, False)
        sys.stdout.flush()
        command = ""


if __name__ == "__main__":
    main()
