"""The command line itself."""

import subprocess


def test_program_says_who_it_is(bindery):
    done = subprocess.run([bindery], capture_output=True, text=True, timeout=30)
    assert "bindery" in done.stdout + done.stderr
