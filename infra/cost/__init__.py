"""What a million seats cost: counted operations times public prices.

    python -m infra.cost            # prints infra/COST.md
    python -m infra.cost --write    # writes it

`counts.toml` holds what one job does, `prices.toml` what each of these things costs, with source
and date. A test (`tests/infra/test_cost.py`) counts again what the code does and compares; another
holds COST.md against this program. Nothing here is deployed.
"""
