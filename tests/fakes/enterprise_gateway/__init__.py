"""A fake Enterprise sandbox gateway that misbehaves on command. See __main__.py."""
