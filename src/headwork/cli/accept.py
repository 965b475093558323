"""`headwork accept`."""

from dataclasses import dataclass

from headwork.cli.arguments import OfRun


@dataclass(frozen=True)
class Accept(OfRun):
    """Accept the config.json and tokenizer.json of a run as they are now, after you edited them on purpose."""

    def run(self) -> None:
        from headwork.storage.folders import MANIFEST, locked
        from headwork.training import open_run

        if (self.run_folder / MANIFEST).exists():
            what = "which has a manifest: it is a model that was converted, or a checkpoint"
            raise ValueError(f"run must be the folder of a run, got {self.run_folder}, {what}")
        run = open_run(self.run_folder, self.own_classes, edited=True)
        with locked(self.run_folder):
            run.write()
        print(f"{self.run_folder} is accepted as it is: {' and '.join(run.files())}")
