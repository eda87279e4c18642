"""`python -m converter` is `nemar-convert`."""

from .cli import main

raise SystemExit(main())
