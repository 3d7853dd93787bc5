"""The command line as `python -m simsql`."""

from simsql.cli import main

if __name__ == "__main__":
    main()
