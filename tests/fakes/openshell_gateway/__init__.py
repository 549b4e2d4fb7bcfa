"""A fake OpenShell gateway on an independent gRPC implementation. See __main__.py."""
