"""The command line. It parses arguments and speaks to people; work is done by the app or a kernel."""
