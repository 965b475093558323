from torch import Tensor, nn


class FilterBank(nn.Module):
    """Filters, their energy, and a small network: the arguments are attributes, so it can be saved."""

    def __init__(self, n_filters: int, width: int = 5, dropout: float = 0.0) -> None:
        super().__init__()
        self.n_filters, self.width, self.dropout = n_filters, width, dropout
        self.filters = nn.Conv1d(1, n_filters, width)
        self.mix = nn.Sequential(nn.Linear(n_filters, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 1))

    def forward(self, series: Tensor) -> Tensor:
        energy = self.filters(series[:, None]).square().mean(-1)
        return self.mix(energy)[:, 0]
