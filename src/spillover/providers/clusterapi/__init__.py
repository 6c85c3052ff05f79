"""The provider `clusterapi`: whole clusters as objects of Cluster API."""
