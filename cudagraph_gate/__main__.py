"""``python -m cudagraph_gate`` is ``cgate``."""

from cudagraph_gate.cli import main

if __name__ == "__main__":
    main()
