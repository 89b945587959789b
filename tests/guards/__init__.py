"""Generated neighbours that attack every promise of privacy; the book's page on promises explains them."""
