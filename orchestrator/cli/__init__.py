"""The command line: parse, call, print. No decision about an experiment is taken here."""
