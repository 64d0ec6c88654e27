"""How fast is it, against which limit? `make bench`; `docs/performance.md` says what that means."""
