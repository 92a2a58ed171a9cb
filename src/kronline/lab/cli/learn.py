"""`kronline learn`."""

import json
import sys

from kronline.lab.learn import Learn, go, summary


def main(args: Learn) -> int:
    """Learn until the stream ends; the exit code."""
    end = go(args)
    if args.json:
        to = sys.stdout if args.out is not None else sys.stderr
        print(json.dumps(end.numbers), file=to)
    else:
        print(f"kronline: {args.folder}: {end.message}", file=sys.stderr)
        if end.numbers["events"]:
            print(f"kronline: {summary.line(end.numbers)}", file=sys.stderr)
    if args.report is not None:
        from kronline.lab.report import stream_page  # noqa: PLC0415  matplotlib takes a second

        path = stream_page.write(args.folder, args.report)
        print(f"kronline: {path}: a report of the stream", file=sys.stderr)
    return end.code
