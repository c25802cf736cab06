"""How Empanel is run: on a cloud project, and on one machine (`infra.local`)."""
