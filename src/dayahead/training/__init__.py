"""The loop over windows and the loop within one: fit, measure, go on."""
