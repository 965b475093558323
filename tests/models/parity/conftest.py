"""Nothing here is fetched: every Hugging Face model is built from a config, with random weights."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
