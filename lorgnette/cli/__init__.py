"""The command line: one short file per command; nothing heavy is imported before a command needs it."""


def main() -> None:
    from lorgnette.cli.app import app

    app(prog_name="lorgnette")
