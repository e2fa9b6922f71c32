"""Trying a store out: cases as plans, and the campaign that runs and judges them."""
