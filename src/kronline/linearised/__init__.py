"""One step of a cell to first order: Jacobians, factored gradients, small decompositions."""
