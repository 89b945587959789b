"""The studies behind the book's figures: each module can be imported by a section and run from the command line.

Studies simulate many worlds at once with seeded noise. They measure methods; they publish nothing and spend no budget.
"""

__all__: list[str] = []
