"""Nothing here is fetched: every Hugging Face model is built from a config, with random weights."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
