"""An application of Django's, for tests of simsql.django."""
