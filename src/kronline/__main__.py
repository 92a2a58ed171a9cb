"""`python -m kronline`."""

from kronline.lab.start import main

if __name__ == "__main__":
    main()
