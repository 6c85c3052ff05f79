"""The provider `aws`: machines of EC2."""
