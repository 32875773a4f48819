"""A link is not a file."""


def build(out):
    (out / "kernel.so").symlink_to("/tmp/kernel-of-tomorrow.so")
