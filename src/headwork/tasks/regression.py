"""A number, or several, for each example."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor, nn

from headwork.batches import Batch, call_model
from headwork.metric import LOSS, Metric, MetricSum
from headwork.serialise import Checked
from headwork.tasks.task import Evaluation, Scores, score_outputs


@dataclass(frozen=True)
class Regression(Checked):
    """The target is a number for each example, or a row of them; the loss is the mean squared error."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return LOSS, Metric("mean_absolute_error", "min")

    def n_targets(self, batch: Batch) -> int:
        return batch[-1].numel()

    def score(self, model: nn.Module, batch: Batch) -> Scores:
        return self.score_output(self.predict(model, batch), batch[-1])

    def predict(self, model: nn.Module, batch: Batch) -> Tensor:
        """The output in the shape of the target: an axis of size 1 at its end may be missing there."""
        output, target = call_model(model, batch), batch[-1]
        if output.shape == (*target.shape, 1):
            return output.squeeze(-1)
        if output.shape != target.shape:
            raise ValueError(
                f"the output of the model must have the shape of the target, {tuple(target.shape)}, "
                f"got {tuple(output.shape)}"
            )
        return output

    def score_output(self, output: Tensor, target: Tensor) -> Scores:
        """Squared and absolute error.

        >>> scores = Regression().score_output(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 5.0]))
        >>> float(scores["loss"].total), scores["loss"].weight
        (9.0, 2)
        """
        error = output - target.to(output.dtype)
        return {
            "loss": MetricSum(error.square().sum(), error.numel()),
            "mean_absolute_error": MetricSum(error.detach().abs().sum(), error.numel()),
        }

    def evaluate(self, model: nn.Module, batches: Iterable[Batch]) -> Evaluation:
        return Evaluation(*score_outputs(self.predict, self.score_output, model, batches))
