"""`python -m lorgnette`, so that `torchrun -m lorgnette look …` works."""

from lorgnette.cli import main

main()
