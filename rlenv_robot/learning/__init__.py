"""The learner that ships: evolution of a small policy for `so101-reach`, in simulation or in a model of a record."""
