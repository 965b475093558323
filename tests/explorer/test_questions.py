"""The protocol: a question survives JSON, a part survives the wire, and nonsense gets a sentence."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwork.explorer import questions as q
from headwork.explorer.answers import Part, decode, encode

numbers = st.floats(-1e3, 1e3, allow_nan=False)
few = st.integers(0, 9)
inputs = st.fixed_dictionaries(
    {},
    optional={
        "text": st.text(max_size=8),
        "ids": st.lists(st.integers(0, 99), max_size=4),
        "pixels": st.lists(numbers, max_size=4),
        "example": few,
    },
)
moves = st.fixed_dictionaries(
    {"attention": few, "head": few, "centre": st.tuples(numbers, numbers).map(list), "alpha": numbers}
)
abouts = st.fixed_dictionaries(
    {},
    optional={
        "input": inputs,
        "off": st.lists(st.tuples(few, few).map(list), max_size=3),
        "moved": st.lists(moves, max_size=2),
        "checkpoint": st.none() | st.text(max_size=5),
    },
)
asked = st.one_of(
    st.fixed_dictionaries({"question": st.just("Read"), "about": abouts}, optional={"position": st.none() | few}),
    st.fixed_dictionaries({"question": st.just("Map"), "about": abouts, "attention": few, "head": few}),
    st.fixed_dictionaries({"question": st.just("Effects"), "about": abouts, "other": inputs, "axis": st.just("token")}),
    st.fixed_dictionaries({"question": st.just("Continue"), "about": abouts, "temperature": numbers, "seed": few}),
    st.just({"question": "Describe"}),
)


@settings(max_examples=30)
@given(asked)
def test_a_question_survives_json(data: dict[str, object]) -> None:
    question = q.question_from_json(json.loads(json.dumps(data)))
    text = json.dumps(q.question_to_json(question))
    assert q.question_from_json(json.loads(text)) == question
    assert json.loads(text)["question"] == data["question"] == type(question).__name__


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (None, "must be an object"),
        ([1], "must be an object"),
        ({}, "question must be one of Describe"),
        ({"question": "Delete"}, "question must be one of"),
        ({"question": []}, r"question must be one of .* got '\[\]'"),
        ({"question": {}}, "question must be one of"),
        ({"question": "Map"}, "Map needs about"),
        ({"question": "Map", "about": 3, "attention": 0, "head": 0}, "Map.about must be an object"),
        ({"question": "Map", "about": {}, "attention": 0.5, "head": 0}, "Map.attention must be a int"),
        ({"question": "Map", "about": {}, "attention": True, "head": 0}, "Map.attention must be a int"),
        ({"question": "Read", "about": {"off": [[1, 2, 3]]}}, "must be a list of 2"),
        ({"question": "Read", "about": {"input": {"pixels": ["a"]}}}, "Read.about.input.pixels must be a float"),
        ({"question": "Read", "about": {"input": {"pixels": [math.inf]}}}, "must be a float"),
        ({"question": "Read", "about": {"input": {"file": "x"}}}, "Read.about.input has no file"),
        ({"question": "Read", "about": {"input": {"text": 3}}}, "must be a str"),
    ],
)
def test_what_is_no_question_gets_a_sentence(data: object, sentence: str) -> None:
    with pytest.raises(q.RefusedError, match=sentence):
        q.question_from_json(data)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.sampled_from(["float32", "uint8", "int32"]), st.lists(st.integers(0, 4), min_size=1, max_size=3)),
        max_size=3,
    ),
    st.text(max_size=20),
)
def test_parts_survive_the_wire(arrays: list[tuple[str, list[int]]], text: str) -> None:
    rng = np.random.default_rng(0)
    made = {f"a{i}": (rng.random(shape) * 200).astype(dtype) for i, (dtype, shape) in enumerate(arrays)}
    wire = encode(Part({"kind": "part", "text": text}, made)) + encode(Part({"kind": "done"}))
    first, second = decode(wire)
    assert first.header == {"kind": "part", "text": text}
    assert second.header == {"kind": "done"}
    for name, array in made.items():
        assert first.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(first.arrays[name], array)


def test_frames_are_aligned_and_carry_nan() -> None:
    wire = encode(Part({"kind": "part", "x": math.nan, "deep": [{"y": -math.inf}]}, {"a": np.zeros(3, np.uint8)}))
    assert len(wire) % 8 == 0
    assert wire.index(b"\0\0\0\0\0\0\0\0") % 8 == 0
    [found] = decode(wire)
    assert found.header == {"kind": "part", "x": "nan", "deep": [{"y": "-inf"}]}
