"""`headwork evaluate`: the best checkpoint of a run, on its own data or on other."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import UseAppendAction, arg

from headwork.cli.answers import Answers, check_finite
from headwork.cli.arguments import OfRunOrModel, complain, without_denormals

if TYPE_CHECKING:
    from torch import nn

    from headwork.data import Examples, Tokenizer
    from headwork.data.text_examples import PairExamples
    from headwork.data.translations import Bleu
    from headwork.models import EncoderDecoder
    from headwork.training import Run


@dataclass(frozen=True)
class Evaluate(OfRunOrModel):
    """Measure the best checkpoint of a run, or a model that was made from it, on its data or on other."""

    split: Annotated[
        Literal["train", "valid", "test"] | None, arg(help="Which examples of the run's own data; test unless given.")
    ] = None
    data: Annotated[
        UseAppendAction[tuple[str, ...]], arg(help="Other data of the same kind, all of it; twice: two files.")
    ] = ()
    set: Annotated[
        UseAppendAction[tuple[str, ...]], arg(help="With --data: how it is read, such as data.text=review.")
    ] = ()
    bleu: Annotated[bool, arg(help="Of a translator: BLEU by sacrebleu, with its signature.")] = False
    beams: Annotated[int, arg(help="With --bleu or --out: how many translations are followed at a time.")] = 1
    mirror: Annotated[
        bool, arg(help="Of images: the mean of what is said of each and of its mirror image, left for right.")
    ] = False
    batch_size: Annotated[int, arg(help="Examples at once.")] = 64
    out: Annotated[
        Path | None,
        arg(help="Write each example, its label and what the model says to this new file: .csv, .json or .jsonl."),
    ] = None
    json: Annotated[bool, arg(help="Print JSON for a program to read.")] = False

    @without_denormals()
    def run(self) -> None:
        from headwork.checks import check_positive
        from headwork.cli.judged import about_examples, judged
        from headwork.training.display import show
        from headwork.training.plan import ordered_batches

        check_positive(batch_size=self.batch_size, beams=self.beams)
        answers = Answers(self.out, quiet=self.json)
        run, model = self.open()
        model = self.mirrored(model) if self.mirror else model
        about: Sequence[Mapping[str, str]] = ()
        if self.data:
            if self.split is not None:
                raise ValueError(f"split is for the run's own data, got {self.split} with --data, all of which counts")
            from headwork.recipes import other_examples, read_settings

            examples, found, about = other_examples(run, self.data, read_settings(self.set))
            of = " and ".join(self.data)
            for line in found:
                complain(line)
        elif self.set:
            raise ValueError(f"set is for other data, given by --data, got {' '.join(self.set)}")
        else:
            of = self.split or "test"
            examples = getattr(run.load_data(), of)
        evaluation = run.task.evaluate(model, ordered_batches(examples, self.batch_size))
        metrics = evaluation.metrics
        check_finite(self.run_folder, metrics)
        bleu = self.measure_bleu(run, model, examples) if self.bleu else None
        if self.out is not None:
            translations = bleu.translations if bleu else self.translations(run, model, examples)
            rows = judged(run.task, model, examples, evaluation, translations)
            about = about or list(about_examples(examples, run.tokenizer))
            with answers:
                for number, (asked, answer) in enumerate(zip(about, rows, strict=True)):
                    answers.add(answer, "", {"example": number, **asked})
        signature = f"{bleu.signature}|beams:{self.beams}" if bleu else ""
        if self.json:
            said = {"run": str(self.run_folder), "split": of, "examples": len(examples)}
            print(json.dumps(said | metrics | ({"bleu": bleu.score, "signature": signature} if bleu else {})))
        else:
            print(f"{self.run_folder} on {len(examples)} {of} examples: {show(metrics, run.task)}")
            if bleu:
                print(f"BLEU {bleu.score:.2f}, {signature}")

    def mirrored(self, model: "nn.Module") -> "nn.Module":
        from headwork.models import MirrorAverage, describe

        description = describe(model)
        if description is None or (description.input, description.output) != ("image", "class"):
            raise ValueError(f"mirror is for models that classify images, got {self.run_folder}")
        return MirrorAverage(model).eval()

    def measure_bleu(self, run: "Run", model: "nn.Module", examples: "Examples") -> "Bleu":
        from headwork.data.translations import measure_bleu

        translator = translator_of(run, model, examples)
        if translator is None:
            raise ValueError(f"bleu is for a translator, got {self.run_folder}")
        return measure_bleu(*translator, n_beams=self.beams, batch_size=self.batch_size)

    def translations(self, run: "Run", model: "nn.Module", examples: "Examples") -> list[str] | None:
        """What a translator makes of the sources; None of what is none."""
        from headwork.data.translations import translate_examples

        translator = translator_of(run, model, examples)
        return translator and translate_examples(*translator, n_beams=self.beams, batch_size=self.batch_size)


def translator_of(
    run: "Run", model: "nn.Module", examples: "Examples"
) -> "tuple[EncoderDecoder, Tokenizer, PairExamples] | None":
    """Model, tokenizer and examples, if they are those of a translator."""
    from headwork.data import Tokenizer
    from headwork.data.text_examples import PairExamples
    from headwork.models import EncoderDecoder

    tokenizer = run.tokenizer if isinstance(run.tokenizer, Tokenizer) else None
    if not isinstance(examples, PairExamples) or not isinstance(model, EncoderDecoder) or tokenizer is None:
        return None
    return model, tokenizer, examples
