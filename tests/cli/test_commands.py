"""The command line as a user types it."""

import json
import re
import subprocess
import sys

import pytest

import headwork as hw
from headwork.cli import main
from headwork.models import PUBLISHED, DecoderConfig
from headwork.serialise import config_to_dict


def run(capsys, *arguments):
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_help_does_not_wait_for_torch():
    program = (
        "import sys; from headwork.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert 'torch' not in sys.modules and 'matplotlib' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "trace" in done.stdout
    assert "cost" in done.stdout


def test_trace_prints_the_table_of_the_qmul_sheet(capsys):
    code, out, _ = run(capsys, "trace", "bert-base", "--tokens", "5")
    assert code == 0
    assert "layers.embedded               [1, 5, 768]" in out
    assert "layers.0.attention.queries    [1, 5, 12, 64]  batch query head d_head" in out
    assert "layers.0.attention.weights    [1, 12, 5, 5]   batch head query key" in out


def test_trace_json_lists_everything(capsys):
    code, out, _ = run(capsys, "trace", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert code == 0
    assert rows["layers.3.attention.weights"]["shape"] == [1, 4, 17, 17]
    assert rows["logits"]["axes"] == ["batch", "class"]


def test_trace_all_lists_every_layer(capsys):
    _, out, _ = run(capsys, "trace", "--all")
    assert "layers.2.attention.weights" in out


def test_cost_of_seven_billion_parameters_without_their_memory(capsys):
    code, out, _ = run(capsys, "cost", "llama-2-7b", "--tokens", "4096", "--json")
    price = json.loads(out)
    assert code == 0
    assert price["n_parameters"] == 6_738_415_616
    assert price["crossover_tokens"] == 8192
    assert sum(price["by_operation"].values()) == price["flops"] == sum(row["flops"] for row in price["rows"])


def test_cost_prints_the_verdict(capsys):
    _, out, _ = run(capsys, "cost", "bert-base", "--tokens", "512")
    assert "Attention products overtake the projections from 1,536 tokens on" in out


def test_sizes_lists_and_dumps(capsys):
    _, out, _ = run(capsys, "models")
    assert "gpt2               Decoder" in out
    _, out, _ = run(capsys, "models", "--json")
    assert json.loads(out)["gpt2"] == config_to_dict(PUBLISHED["gpt2"])


def test_a_config_file_is_a_model_too(capsys, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config_to_dict(DecoderConfig(vocab=7, n_layers=1))))
    code, out, _ = run(capsys, "trace", str(path), "--tokens", "3")
    assert code == 0
    assert "[1, 3, 7]" in out


@pytest.mark.parametrize("name", ["digits-vit", "resnet20", "t5-small"])
def test_a_figure_is_drawn(capsys, tmp_path, name):
    path = tmp_path / "new folder" / "inside.png"
    code, _, err = run(capsys, "trace", name, "--figure", str(path))
    assert code == 0
    assert str(path) in err
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trace", "bert-bse"], "model 'bert-bse' is not known; did you mean 'bert-base'?"),
        (["cost", "gpt2", "--tokens", "0"], "tokens must be 1 or more, got 0"),
        (["cost", "gpt2", "--batch", "-1"], "batch must be 1 or more, got -1"),
        (["cost", "gpt2", "--batch", "1000000000000000000"], "tokens and batch must be at most 10,000,000"),
        (["cost", "vit-b16", "--tokens", "500"], "tokens is for text models, got 500 for vit-b16"),
        (["trace", "--batch", "8", "--figure", "x.png"], "batch must be 1 with --figure"),
        (["trace", "llama-2-7b", "--figure", "x.png"], "figure needs the weights of llama-2-7b, 6,738,415,616 of them"),
        (["cost", "gpt2", "--tokens", "1025"], "longer than the 1024 learned positions, got 1025 tokens"),
        (["trace", "nowhere.json"], "model must be a config file that exists, got nowhere.json"),
        (["trace", "--figure", "x.png", "--image", "nowhere.png"], "image must be a file that exists, got nowhere.png"),
        (["trace", "--image", "a.png"], "image is used for the drawing only: give --figure too"),
        (["trace", "gpt2", "--figure", "x.png", "--image", "a.png"], "image is for image models"),
        (["trace", "--figure", "x.xyz"], "figure must end in one of"),
        (["cost", "runs/nope"], "model must be a published model, a config file (.json) that exists, or a folder"),
        (["cost", "{this_file}"], "or a folder with a config.json, got {this_file}"),
        (["compare", "{this_file}"], "runs must be folders of runs, got the file {this_file}"),
        (["lab", "temperature", "--out", "{this_file}"], "out must be a folder, got the file {this_file}"),
        (["trian"], "command 'trian' is not known; did you mean 'train'?"),
        (["train", "dats", "--help"], "recipe 'dats' is not known; did you mean 'dates'?"),
        (["train", ""], "recipe '' is not known; there are digits-vit, "),
        (["train", "--import", "../x"], "module must be a name such as my_module or my_package.my_module, got '../x'"),
        (["train", "--import", ""], "module must be a name such as my_module or my_package.my_module, got ''"),
    ],
)
def test_asking_wrongly_is_exit_code_2_and_says_why(capsys, arguments, message):
    code, out, err = run(capsys, *(argument.format(this_file=__file__) for argument in arguments))
    assert code == 2
    assert out == ""
    assert message.format(this_file=__file__) in err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "must be a config file in JSON"),
        (b"\xff\xfe\x00", "must be a config file in JSON"),
        (b"{}", "kind must be a class that is known here"),
        (b'{"kind": []}', "kind must be a class that is known here"),
        (b"[" * 100_000, "must be a config file in JSON"),
        (b'{"kind": "DecoderConfig", "vocab": 5, "d_modle": 3}', "did you mean 'd_model'"),
    ],
)
def test_a_broken_config_file_is_named(capsys, tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    code, _, err = run(capsys, "cost", str(path))
    assert code == 2
    assert message in err


def test_a_picture_that_cannot_be_read_is_named(capsys, tmp_path):
    path = tmp_path / "broken.png"
    path.write_bytes(b"not a picture")
    code, _, err = run(capsys, "trace", "--figure", str(tmp_path / "x.png"), "--image", str(path))
    assert code == 2
    assert "image must be a picture that can be read" in err
    assert not (tmp_path / "x.png").exists()


def test_a_folder_that_cannot_be_written_is_exit_code_1(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = run(capsys, "trace", "--figure", str(tmp_path / "file" / "x.png"))
    assert code == 1
    assert "headwork: failed:" in err


def test_a_folder_is_not_a_config(capsys, tmp_path):
    (tmp_path / "folder.json").mkdir()
    code, _, err = run(capsys, "cost", str(tmp_path / "folder.json"))
    assert code == 2
    assert "got the folder" in err


def test_a_reader_that_leaves_early_is_no_failure():
    done = subprocess.run(
        f"{sys.executable} -m headwork models --json | head -1", shell=True, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "{"


def test_stopped_by_the_user(capsys, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("headwork.cli.commands.Models.run", interrupted)
    code, _, err = run(capsys, "models")
    assert code == 130
    assert err == "headwork: stopped\n"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["train", "--epoch", "3"], "--epochs"),
        (["cost", "gpt2", "--token", "5"], "--tokens"),
        (["models", "--jsn"], ""),
    ],
)
def test_an_unknown_flag_is_exit_code_2_and_the_nearest_of_this_command_is_named(capsys, arguments, meant):
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert meant in said
    assert "max-new-tokens" not in said  # a flag of other commands
    assert f"headwork {arguments[0]} --help" in said


def test_the_version(capsys):
    assert run(capsys, "--version") == (0, f"headwork {hw.__version__}\n", "")


def help_of(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--help"])
    assert not end.value.code
    return " ".join(re.sub("[│╭╰─╮╯]", " ", capsys.readouterr().out).split())


def test_the_help_of_train_shows_the_values_of_the_recipe(capsys):
    said = help_of(capsys, "train", "text-gpt")
    for flag, value in {"--steps": "2000", "--lr": "0.002", "--position": "learned", "--norm": "pre"}.items():
        assert re.search(rf"{flag} [^()]*\(default: {value}\)", said)
    assert "default: None" not in help_of(capsys, "train").split("--import")[0].split("options")[1]


@pytest.mark.parametrize(("flag", "other"), [("epochs", "steps"), ("steps", "epochs")])
def test_epochs_and_steps_replace_each_other(flag: str, other: str) -> None:
    """As in `headwork train digits-vit --epochs 10`."""
    from headwork.cli.training_flags import TrainingFlags
    from headwork.recipes import RECIPES, find_recipe, override

    for name in RECIPES:
        config = find_recipe(name)
        training = override(config, TrainingFlags(**{flag: 3}).overrides(config)).training
        assert (getattr(training, flag), getattr(training, other)) == (3, None)


def test_train_says_something_before_it_imports_pytorch():
    """The imports take seconds; here there is no PyTorch at all, and the first line is said all the same."""
    program = (
        "import sys\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'torch': raise ImportError('there is no torch')\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "from headwork.cli import main; main(['train', 'digits-vit'])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    first, *rest = found.stderr.splitlines()
    assert first == "loading PyTorch and digits-vit"
    assert rest[-1] == "ImportError: there is no torch"


def test_python_does_not_look_through_all_objects_again_before_it_leaves():
    """That takes a second after the last line, with PyTorch and Matplotlib loaded."""
    program = (
        "import atexit, gc\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 1000))\n"  # called after what `main` registers
        "from headwork.cli import main; main(['--version'])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert found.stdout.splitlines()[-1] == "True"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("train digits-vit --epochs two", "--epochs must be a whole number, got 'two'; see headwork train --help"),
        ("train digits-vit --lr fast", "--lr must be a number, got 'fast'"),
        ("predict run a.png --top x", "--top must be a whole number, got 'x'; see headwork predict --help"),
        ("convert model --out new --kernel-size 3", "--kernel-size must be two whole numbers, got '3'"),
        ("train digits-vit --epoch 2", "--epoch, 2; perhaps you meant --epochs; see headwork train --help"),
        ("generate model --weights int3", "invalid choice 'int3' for argument '--weights'. Expected one of"),
        ("generate", "The folder of a run. (required); see headwork generate --help"),
    ],
)
def test_arguments_that_cannot_be_read_are_an_error_of_one_line(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("headwork: error: ")
    assert said in line
