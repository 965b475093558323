"""Evaluation mode for a while: every module gets back the mode it had."""

import pytest
from torch import nn

from headwork.models.model import evaluation_mode


@pytest.mark.parametrize("fails", [False, True])
def test_every_module_gets_its_own_mode_back(fails):
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout()).eval())
    modes = [module.training for module in model.modules()]
    assert modes == [True, True, False, False]

    def run():
        with evaluation_mode(model):
            assert not any(module.training for module in model.modules())
            if fails:
                raise ZeroDivisionError

    if fails:
        with pytest.raises(ZeroDivisionError):
            run()
    else:
        run()
    assert [module.training for module in model.modules()] == modes
