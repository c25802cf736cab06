"""The rules of jobs, leases, retries and identities: pure, without input or output."""
