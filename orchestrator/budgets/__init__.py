"""Budgets: what tenants and trees of runs may use up; reserved before a model is asked, settled by what it did."""
