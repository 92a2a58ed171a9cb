"""`python -m kronline`."""

from kronline.lab.cli import main

if __name__ == "__main__":
    main()
