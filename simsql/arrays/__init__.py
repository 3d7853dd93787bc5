"""Arrays that several rooms share: fingerprints in every form, columns of other libraries, and positions."""
