"""`python -m kronline`."""

from kronline.cli import main

if __name__ == "__main__":
    main()
