"""`kronline`, with a byte on a pipe before and after each commit and each checkpoint.

    KRONLINE_MARKS=FD python tests/learn_child.py learn ...

Whoever reads the pipe knows in which of them the process is: c commits and k checkpoints begin, C
and K have ended.
"""

import os
import sys

from kronline.lab.learn import checkpoints, journal
from kronline.lab.start import main

FD = int(os.environ["KRONLINE_MARKS"])


def marked(function, begin, end):
    def call(*args, **kwargs):
        os.write(FD, begin)
        result = function(*args, **kwargs)
        os.write(FD, end)
        return result

    return call


if __name__ == "__main__":
    journal.Journal.commit = marked(journal.Journal.commit, b"c", b"C")
    checkpoints.write = marked(checkpoints.write, b"k", b"K")
    main(sys.argv[1:])
