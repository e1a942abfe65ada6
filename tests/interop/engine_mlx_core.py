"""MLX alone, without mlx-lm: it decodes folders of models that numpy makes."""

import plain_models
from mlx_folder import decode  # noqa: F401: the tester calls it

FORMATS = ("mlx",)
MODELS = plain_models.TYPES
DTYPE = None
TOOLS = {}


def make_model(model, folder):
    plain_models.make(model, folder)
