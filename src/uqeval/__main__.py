"""`python -m uqeval`."""

from uqeval.cli.main import main

if __name__ == "__main__":
    main()
