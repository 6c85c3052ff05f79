"""The provider `kubernetes`: pods of a Kubernetes cluster as machines."""
