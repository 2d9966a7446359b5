"""`python -m deltawire`: the command line tool."""

from deltawire.cli import main

main()
