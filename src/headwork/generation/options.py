"""Options of Hugging Face's `generate` that are said otherwise here, and how."""

from collections.abc import Mapping

_OF_SAMPLE = ("temperature", "top_k", "top_p", "min_p")
_SAID_BY = {
    "do_sample": "sampling=Sample() for a token by chance; the likeliest is taken without",
    "repetition_penalty": "sampling=Greedy(repetition_penalty=...) or sampling=Sample(repetition_penalty=...)",
    "num_beams": "beam_search(model, ids, n_beams=...)",
    "length_penalty": "beam_search(model, ids, n_beams=..., length_penalty=...)",
    "max_length": "max_new_tokens=..., which does not count the prompt",
    "eos_token_id": "end=...",
    "stop_strings": "stop=[...] of generate_text and stream_text",
    "attention_mask": "visible=attention_mask.bool(), or lists of ids of different lengths without a mask",
    "pad_token_id": "nothing: lists of ids may have different lengths, and need no padding",
    "seed": "generator=torch.Generator().manual_seed(...)",
    "streamer": "stream(...) for ids, stream_text(...) for a text",
    "prompt_lookup_num_tokens": "prompt_lookup=...",
}


def refuse_options(options: Mapping[str, object]) -> None:
    """Raise for options that are not there, and say what to write instead.

    >>> refuse_options({"temperature": 0.7, "top_k": 50})
    Traceback (most recent call last):
    TypeError: there is no option temperature: write sampling=Sample(temperature=0.7, top_k=50)
    """
    if not options:
        return
    name = next(iter(options))
    of_sample = ", ".join(f"{one}={options[one]!r}" for one in _OF_SAMPLE if one in options)
    said = f"sampling=Sample({of_sample})" if name in _OF_SAMPLE else _SAID_BY.get(name)
    raise TypeError(f"there is no option {name}" + ("" if said is None else f": write {said}"))
