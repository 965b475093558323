"""`headwork explore`."""

import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from headwork.cli.arguments import Imports, complain


@dataclass(frozen=True)
class Explore(Imports):
    """Open a model in the browser: type, draw and drag, and see what every head does.

    The page works offline and on this machine only.
    """

    model: Annotated[
        Positional[str],
        arg(help="A run, the folder of a model (ours or Hugging Face's), a GGUF file, or a published name."),
    ]
    against: Annotated[str | None, arg(help="A second model, to compare the answers.")] = None
    text: Annotated[str | None, arg(help="What to read first (ids for a model without a tokenizer).")] = None
    image: Annotated[Path | None, arg(help="What to look at first (image models).")] = None
    export: Annotated[
        Path | None, arg(help="Write one HTML file that works without a server, instead of opening a page.")
    ] = None
    recorded: Annotated[bool, arg(help="With --export: answers only, also of a model that could live in the page.")] = (
        False
    )
    port: Annotated[int, arg(help="Of the server; 0: any that is free.")] = 0
    no_browser: Annotated[bool, arg(help="Only print the address.")] = False
    allow_host: Annotated[
        UseAppendAction[tuple[str, ...]],
        arg(help="A further name under which a proxy that you trust shows the page; can be given again."),
    ] = ()

    def run(self) -> None:
        self.check()
        from headwork.explorer.answering import Answering
        from headwork.explorer.opening import open_subject

        subject = open_subject(self.model, self.own_classes)
        if self.text is not None and subject.description.input == "image":
            raise ValueError(f"text is for models that read text, got {self.text!r} for {self.model}")
        if self.image is not None and subject.description.input != "image":
            raise ValueError(f"image is for models that read images, got {self.image} for {self.model}")
        other = None if self.against is None else open_subject(self.against, self.own_classes)
        answering = Answering(subject, other, text=self.text, image=self.image)
        if self.export is not None:
            from headwork.explorer.export import export_page

            print(export_page(answering, self.export, living=not self.recorded))
            return
        self.serve(answering)

    def check(self) -> None:
        if not 0 <= self.port < 2**16:
            raise ValueError(f"port must lie in 0 .. {2**16 - 1}, got {self.port}")
        if self.export is not None and self.export.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"export must end in .html, got {self.export}")
        if self.export is not None and self.export.exists():
            raise ValueError(f"export must be a new file, got {self.export}, which exists")
        if self.recorded and self.export is None:
            raise ValueError("recorded is for --export FILE.html, got it alone")

    def serve(self, answering: "object") -> None:
        """Until it is stopped."""
        from headwork.explorer.server import Server
        from headwork.explorer.worker import Worker

        worker = Worker(answering)  # type: ignore[arg-type]
        with Server(worker, self.port, self.allow_host) as server:
            for host in self.allow_host:
                complain(f"WARNING: whoever can reach {host} and has the address below can use this model")
            print(server.url, flush=True)
            print("Open this address in a browser on this machine; Ctrl-C ends it.", file=sys.stderr)
            if not self.no_browser and not webbrowser.open(server.url):
                complain("no browser could be opened: copy the address")
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                print("closed", file=sys.stderr)
            finally:
                worker.close()
