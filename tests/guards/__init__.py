"""Generated neighbours that attack every promise of privacy in the package; the book's page on promises explains them."""
