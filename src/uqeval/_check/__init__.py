"""Anything a user passes → clean float64 arrays, or an error that says what to do.

All input messages about arrays live here; messages about files and columns live in `inputs`.
"""

from uqeval._check.grid import on_grid
from uqeval._check.model import (
    Widened,
    check_alpha,
    check_features,
    check_labels,
    check_logits,
    check_members,
    check_probs,
)
from uqeval._check.rows import (
    MEND,
    Bit,
    Float,
    Int,
    Nan,
    Progress,
    all_finite,
    check_bits,
    check_bits_and_weights,
    check_choice,
    check_codes,
    check_count,
    check_errors,
    check_largest,
    check_lengths,
    check_level,
    check_loss,
    check_rows,
    check_seed,
    check_seed_kind,
    check_vector,
    check_weight_values,
    check_weights,
    clean_vector,
    drop_rows,
    omits,
    recode,
    to_array,
    without_nan,
)
from uqeval._errors import nearest
